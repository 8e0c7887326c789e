"""Accounting logs without names, for people outside the site: `anonymise` writes one."""

from rtsched.logs.anonymous.pseudonyms import KeyFile, Name, Pseudonyms
from rtsched.logs.anonymous.writing import Anonymised, anonymise

__all__ = ["Anonymised", "KeyFile", "Name", "Pseudonyms", "anonymise"]
