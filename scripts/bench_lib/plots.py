"""Line plots. Only these need matplotlib."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Curve = tuple[Sequence[float], Sequence[float]]
DPI = 110


def lines(
    file: Path, title: str, axes: tuple[str, str], curves: Mapping[str, Curve], *, is_log_x: bool = False
) -> None:
    """Write one plot of these curves, from zero up. Without matplotlib, print a line that says so."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"{file.name} not written: install matplotlib: .venv/bin/pip install -e '.[bench]'", file=sys.stderr)
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, plot = plt.subplots(figsize=(7.5, 4))
    for name, (x, y) in curves.items():
        plot.plot(x, y, label=name, **({"marker": "o"} if is_log_x else {"linewidth": 1.2}))
    if is_log_x:
        plot.set_xscale("log")
    plot.set_ylim(bottom=0)
    plot.set_title(title)
    plot.set_xlabel(axes[0])
    plot.set_ylabel(axes[1])
    plot.grid(alpha=0.3)
    plot.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=DPI, bbox_inches="tight")
    plt.close(figure)
