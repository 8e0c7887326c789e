"""The built-in policies' arithmetic: plain arrays in, plain arrays out."""
