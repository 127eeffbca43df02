"""What row programs have in addition to expressions: which dimensions align, and the passes over a row."""
