"""A local web page on which one instance is asked again and again."""
