"""What row programs have besides expressions: which dimensions line up, and the passes over a row."""
