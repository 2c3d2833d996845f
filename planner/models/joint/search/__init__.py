"""The curve of money against days: one heap over ranges of the table of columns, each with a floor of both."""
