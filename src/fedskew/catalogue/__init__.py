"""What there is: methods, ingredients, datasets, partitioners, and the papers behind them."""
