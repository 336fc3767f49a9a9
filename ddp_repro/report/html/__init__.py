"""``report.html``: one self-contained page on a run, made from the files that the run left."""
