"""Start estimates: when waiting jobs start and end, with odds.

The queue is simulated ahead many times, each time with other run times, drawn from the past of the
users, and other arrivals, drawn from the site's rhythm. The spread of the outcomes, calibrated by
the estimates of the past, is the answer.
"""
