"""HTCondor as a live system: reading queue and slots, and carrying decisions out.

Sources: HTCondor's manual (htcondor2 and classad2, job and machine attributes, configuration).
"""
