"""Stored events as lines that people read as they happen. Pure: a record in, text out."""

from rackyard.cli.common import clock, plain
from rackyard.faults import observations as seen
from rackyard.jobs import events as ev
from rackyard.jobs.events import Record
from rackyard.placement import decode


def line(record: Record) -> str | None:
    """One line for the timeline; None for an event that would only be noise there."""
    text = _text(record)
    return None if text is None else f"{clock(record.wall)}  {text}"


def describe(record: Record) -> str:
    """What happened in one line, for any event."""
    return _text(record) or ", ".join(
        f"{name} {value}" for name, value in plain(record.event).items() if name not in ("wall", "mono", "tail")
    )


def _text(record: Record) -> str | None:
    event = record.event
    match event:
        case ev.Submitted():
            accepted = f", accepts {', '.join(event.accept)}" if event.accept else ""
            return f"submitted   {event.job}: {event.spec['gpus']} GPUs{accepted}"
        case ev.Rejected():
            return f"no seat     {event.summary}"
        case ev.Placed():
            return f"placed      attempt {event.attempt}: {where(event)}"
        case ev.Launched():
            back = "from nothing" if event.resume_step is None else f"from checkpoint of step {event.resume_step}"
            notes = "".join(f"; damaged and passed over: {text}" for text in event.damaged)
            return f"launch      attempt {event.attempt}, {back}{notes}"
        case ev.Progress():
            # Told once a step, by the rank whose metrics are shown: the others are the same step again.
            if 0 not in event.steps:
                return None
            step, metrics = event.points[-1] if event.points else (event.steps[0], {})
            return f"step        {step}" + (f", loss {metrics['loss']:.4f}" if "loss" in metrics else "")
        case ev.FaultInjected():
            return f"FAULT       {event.kind} strikes {event.target} (simulated)"
        case ev.FaultDetected():
            return f"detected    {event.summary}; {len(event.echoes)} echoes"
        case ev.Advised():
            return f"advice      {event.action}: {event.reason}"
        case ev.AttemptEnded():
            return f"ended       attempt {event.attempt}: {event.outcome}"
        case ev.Finished():
            return f"{event.outcome:<11} {event.reason}"
        case ev.CancelRequested():
            return "cancel      requested"
        case seen.NodeWarm():
            return (
                f"cold        {event.node}: {event.problem}"
                if event.problem
                else f"warm        {event.node} in {event.seconds:.1f} s"
            )
        case seen.CheckpointDone():
            return f"checkpoint  step {event.step} published"
        case seen.CheckpointDamaged():
            return f"damaged     {event.path}: {event.why}"
        case seen.StacksCaptured():
            return f"stacks      of rank {event.rank} on {event.node} captured"
        case seen.NodeLost():
            return f"node lost   {event.node}: {event.why}"
        case seen.FabricDown():
            return f"fabric      {event.rack} {event.part} down"
        case _:
            return None


def where(event: ev.Placed) -> str:
    """The seats of an attempt in a few words."""
    placement = decode(dict(event.placement))
    parts = [f"{segment.rack} [{', '.join(segment.nodes)}]" for segment in placement.segments]
    spares = f"; spare {', '.join(placement.spares)}" if placement.spares else ""
    moved = f"; {event.moved} ranks moved" if event.attempt > 1 else ""
    return "; ".join(parts) + spares + moved
