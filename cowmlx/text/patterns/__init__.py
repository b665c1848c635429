"""What can be known of a regular expression of a ``tokenizer.json`` without running it.

The library runs them with Oniguruma, in Ruby's syntax, from left to right over the text. A
pattern here is the graph of what its parts may match next to each other, which shows
where no match can cross, whatever stands around it.
"""
