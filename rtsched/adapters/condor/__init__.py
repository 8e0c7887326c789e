"""HTCondor as a live system: reading queue and slots, and carrying decisions out.

Sources: HTCondor's manual (htcondor2 and classad2, job and machine attributes, configuration).
"""

from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.condor.system import CondorSystem

__all__ = ["CondorSettings", "CondorSystem", "CondorTranslator"]
