# The image of the controller and of the node agent: `docker build -t rackyard:0.1.0 .`
# What goes in is what .dockerignore lets through; versions are those of uv.lock. arm64 (Grace) and amd64 alike.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/rackyard \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
WORKDIR /src
COPY pyproject.toml uv.lock README.md LICENSE ./
# What others made is a layer of its own: it changes with uv.lock only.
RUN uv sync --frozen --no-cache --no-dev --extra kubernetes --no-install-project
COPY src ./src
RUN uv sync --frozen --no-cache --no-dev --extra kubernetes --no-editable

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="rackyard" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/rackyard /opt/rackyard
# Nothing is written but to /tmp, so the root file system may be read-only.
ENV PATH=/opt/rackyard/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["rackyard"]
CMD ["--help"]
