/* A job ad as a question to the daemon. */
#ifndef RTSCHED_JOB_AD_H
#define RTSCHED_JOB_AD_H

#include <map>
#include <string>

#include <classad/classad_distribution.h>

namespace rtsched {

using Lines = std::map<std::string, std::string>;

struct JobAd {
	std::string lines;	  /* `Name = literal`, as they are sent */
	Lines needs;		  /* literals by name: what the procs of an array have in common */
	double deadline = 0;	  /* RtDeadline; 0: none */
	long long cluster = -1;	  /* ClusterId */
	bool wishes = false;	  /* it says something that only the daemon can judge */
	bool whole = false;	  /* all procs of its cluster are judged as one */
	bool materialized = false; /* made from a cluster that is in the queue already */
	bool apart = false;	  /* materialized, and a job by itself that its cluster's verdict does
				   * not speak of */
	bool takes_slot = true;	  /* it does not run on the access point itself */
	long long minutes = -2;	  /* RtRunTime, rounded up; -2: none is stated */
	bool open = false;	  /* its transform waits for a verdict */
};

/* Return what is known of a job; expressions are worked out in the ad. */
JobAd describe(const classad::ClassAd &ad);

} // namespace rtsched

#endif
