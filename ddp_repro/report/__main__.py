"""``python -m ddp_repro.report RUN``: makes a run's ``report.html`` again; the command itself is `ddp_repro.retell`."""

from ddp_repro.entry import enter

if __name__ == "__main__":  # processes that read traces import this again
    enter("report")
