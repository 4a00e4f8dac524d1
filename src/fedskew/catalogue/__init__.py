"""What there is; only the command reads it, so all within may change.

Methods, ingredients, datasets, partitioners, and the papers behind them.
"""
