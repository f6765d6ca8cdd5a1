"""How often to save: the interval that loses least time between stalls and recomputed work.

Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
Computer Systems 22(3), 2006, equation 37, which refines J. W. Young, "A first order approximation to the optimum
checkpoint interval", CACM 17(9), 1974: sqrt(2 * stall * mtbf).
"""

import math


def recommended_interval(stall: float, mtbf: float) -> float:
    """Seconds of training between the end of one save and the start of the next.

    `stall` is how long training stands still for one save, in seconds; with asynchronous saving that is the staging,
    not the writing. `mtbf` is the mean time between failures of the whole job, in seconds: that of one node divided
    by the number of nodes. Raises ValueError unless both are finite and above 0.

    Writing in the background takes time too: an interval shorter than that makes the next save wait for it.
    """
    _positive(stall=stall, mtbf=mtbf)
    if stall >= 2 * mtbf:
        # Outside the series' range the best that can be done is one save a failure (Daly, equation 37).
        return mtbf
    ratio = stall / (2 * mtbf)
    return math.sqrt(2 * stall * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall


def overhead(interval: float, stall: float, mtbf: float) -> float:
    """Share of time lost to stalls and to recomputing, to first order: stall/interval + interval/(2 * mtbf).

    All in seconds; restart time is left out because it doesn't depend on the interval. Raises ValueError unless all
    are finite and above 0.
    """
    _positive(interval=interval, stall=stall, mtbf=mtbf)
    return stall / interval + interval / (2 * mtbf)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number of seconds above 0, not {value}")
