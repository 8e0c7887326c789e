/* Compiled with the public headers of a Slurm release: spank.h declares the logging functions that
 * the submit filter declares by itself. A difference is an error. */
#include <slurm/spank.h>

#include "slurm_internal.h"
