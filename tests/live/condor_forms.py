"""Submit files of HTCondor in the styles in use: what each adds to a job that runs `/bin/true`."""

from typing import NamedTuple

MACHINE = {
    "HasDocker": "True",
    "HasContainer": "True",
    "HasApptainer": "True",
    "HasSingularity": "True",
    "HasSIF": "True",
    "HasDockerURL": "True",
    "HasSandboxImage": "True",
    "HasCVMFS": "True",
    "OSVariant": '"rocky,9"',
    "UsageModels": '"ONLINE,OFFSITE"',
    "ProjectRevision": "1200",
}
"""What the machines say of themselves that files ask for."""

FILES = {
    "items.txt": "one 1\ntwo 2\nthree 3\n",
    "in1.dat": "1\n",
    "in2.dat": "2\n",
    "common.inc": "common = 5\n",
    "work.sh": "#!/bin/sh\nexit 0\n",
}
"""What is in the directory of the submit file."""


class Form(NamedTuple):
    """A form of submit file.

    Attributes
    ----------
    lines : str
        Lines of the file, but for the executable.
    refused : str
        What its user reads who asks for a deadline, where that cannot be promised.
    args : tuple of str
        More words for condor_submit.
    runs : bool
        Whether it ends by itself on the pool, in a few seconds.
    """

    lines: str = ""
    refused: str = ""
    args: tuple[str, ...] = ()
    runs: bool = True


UNIVERSE = "jobs of this universe get no promise; use vanilla, container or parallel"
BIT_BY_BIT = "clusters with max_materialize or max_idle get no promise; leave these out"

FORMS: dict[str, Form] = {
    # How many jobs, and from where
    "plain": Form(),
    "queue N": Form("queue 3"),
    "queue in": Form("arguments = $(item)\nqueue item in (a, b c)"),
    "queue from list": Form("arguments = $(name) $(n)\nqueue name, n from (\n one 1\n two 2\n)"),
    "queue from file": Form("arguments = $(name) $(n)\nqueue name, n from items.txt"),
    "queue from slice": Form("arguments = $(name)\nqueue name, n from [:2] items.txt"),
    "queue from command": Form("arguments = $(Item)\nqueue from seq 3 |"),
    "queue matching": Form("transfer_input_files = $(f)\nqueue f matching files in*.dat"),
    "queue N in": Form("arguments = $(item) $(Step)\nqueue 2 item in (a, b)"),
    "macros and if": Form(
        "runs = 2\nif defined runs\n arguments = $INT(runs) $Fnx(work.sh)\nelse\n arguments = 0\n"
        "endif\nqueue $(runs)"
    ),
    "functions of macros": Form("names = a b\narguments = $CHOICE(Process, a, b) $(other:x)"),
    "include": Form("include : common.inc\narguments = $(common)"),
    "max_materialize": Form("max_materialize = 2\nqueue 4", refused=BIT_BY_BIT),
    "max_idle": Form("max_idle = 1\nqueue 3", refused=BIT_BY_BIT),
    # What it takes
    "units": Form("request_cpus = 2\nrequest_memory = 1G\nrequest_disk = 100M"),
    "memory that grows": Form(
        "request_memory = ifThenElse(MemoryUsage =!= undefined, MAX({512, MemoryUsage * 3/2}), 512)"
    ),
    "memory by starts": Form("request_memory = 512 * (NumJobStarts + 1)"),
    "retry_request_memory": Form("request_memory = 256\nretry_request_memory = 1024"),
    "memory by its own attribute": Form("+Wanted = 700\nrequest_memory = MY.Wanted"),
    "disk by the input": Form(
        "transfer_input_files = in1.dat\nrequest_disk = 2 * DiskUsage + 4096"
    ),
    "cpus of the machine": Form(
        "request_cpus = TARGET.TotalSlotCpus / 2", refused="request_cpus has no value", runs=False
    ),
    "memory of the machine": Form(
        "request_memory = TARGET.TotalSlotMemory / TARGET.TotalSlotCpus",
        refused="request_memory has no value",
        runs=False,
    ),
    "gpus": Form("request_gpus = 1", runs=False),
    "gpus_minimum_memory": Form("request_gpus = 1\ngpus_minimum_memory = 1G", runs=False),
    "gpus_minimum_capability": Form("request_gpus = 1\ngpus_minimum_capability = 7.0", runs=False),
    "require_gpus": Form(
        "request_gpus = 1\nrequire_gpus = (Capability >= 7.5) && GlobalMemoryMb >= 2000", runs=False
    ),
    "docker": Form("universe = docker\ndocker_image = debian:stable-slim", runs=False),
    "container": Form("universe = container\ncontainer_image = docker://alpine", runs=False),
    "container by file": Form("container_image = /srv/images/work.sif", runs=False),
    "container_target_dir": Form(
        "container_image = docker://debian\ncontainer_target_dir = /scratch", runs=False
    ),
    "concurrency limits": Form("concurrency_limits = matlab, db:2"),
    "accounting group": Form("accounting_group = group_physics\naccounting_group_user = alice"),
    "accounting group by attribute": Form('+AccountingGroup = "group_physics.alice"'),
    "nice user": Form("nice_user = true", runs=False),
    "priority": Form("priority = 10"),
    # Where it may run
    "requirements, operators": Form(
        'requirements = (OpSys == "LINUX") && (Arch =?= "X86_64") && (Memory > 100 || Cpus >= 2)'
    ),
    "requirements, regexp": Form('requirements = regexp("^(fast|slow)[0-9]+\\..*", Machine)'),
    "requirements, lists": Form(
        '+Models = "online"\nrequirements = stringListsIntersect(toUpper(TARGET.UsageModels), '
        'toUpper(MY.Models)) && stringListMember("rocky", TARGET.OSVariant, ",")'
    ),
    "requirements, undefined": Form(
        "requirements = (isUndefined(Wanted) || Wanted == TARGET.OSVariant) && "
        "(TARGET.ProjectRevision ?: 0) >= 1100 && TARGET.Offline =!= True"
    ),
    "requirements, ifThenElse": Form(
        "requirements = ifThenElse(isUndefined(HasCVMFS), false, HasCVMFS) && "
        'versionGE(split(TARGET.CondorVersion)[1], "8.9.7")'
    ),
    "requirements, other machine than before": Form(
        "job_machine_attrs = Machine\njob_machine_attrs_history_length = 3\n"
        "requirements = target.machine =!= MachineAttrMachine1 && "
        "target.machine =!= MachineAttrMachine2"
    ),
    "requirements, last failure": Form(
        "requirements = LastRemoteHost =?= undefined || "
        'Machine != split(LastRemoteHost, "@")[1] || NumJobStarts == 0'
    ),
    "requirements, time and load": Form(
        "requirements = TARGET.LoadAvg < 1000 && (time() - EnteredCurrentStatus >= 0)"
    ),
    "rank": Form('rank = Mips / 2 + Memory + 100 * (Machine == "fast1.testbed")'),
    "wanted machines": Form('+Sites = "a,b"\n+Project = "physics"\n+WantFlocking = true'),
    # When, and how it ends
    "max_retries": Form("max_retries = 3\nsuccess_exit_code = 0\nretry_until = 1 + 1"),
    "on_exit": Form(
        "on_exit_hold = (ExitBySignal == true) || (ExitCode != 0)\n"
        'on_exit_hold_reason = "failed"\non_exit_remove = (ExitCode =?= 0)'
    ),
    "on_exit_remove = false": Form(
        "on_exit_remove = false", refused="or write on_exit_remove = ExitCode == 0", runs=False
    ),
    "on_exit_remove, constant": Form("on_exit_remove = (1 == 2)\nmax_retries = 2", runs=False),
    "on_exit_hold = true": Form(
        "on_exit_hold = true", refused="or write on_exit_hold = ExitCode != 0", runs=False
    ),
    "periodic expressions": Form(
        "periodic_hold = (JobStatus == 2) && (time() - EnteredCurrentStatus > 3600 * 5)\n"
        "periodic_release = (HoldReasonCode == 3) && (NumJobStarts < 5) && "
        "((time() - EnteredCurrentStatus) > 180)\n"
        "periodic_remove = (JobStatus == 5) && ((CurrentTime - EnteredCurrentStatus) > 86400)"
    ),
    "committed time": Form(
        "periodic_remove = (CommittedTime - CommittedSuspensionTime) > 43200\nnotification = Never"
    ),
    "allowed_execute_duration": Form("allowed_execute_duration = 600"),
    "allowed_job_duration": Form("allowed_job_duration = 600\njob_max_vacate_time = 30"),
    "deferral_time": Form("deferral_time = $(begin)\ndeferral_window = 60", runs=False),
    "deferral_time from now": Form(
        "deferral_time = (QDate + 60)\ndeferral_prep_time = 30", runs=False
    ),
    "deferral_time that moves": Form(
        "deferral_time = (CurrentTime + 3600)", refused="changes while the job waits", runs=False
    ),
    "cron": Form(
        "cron_minute = 0,30\ncron_hour = *\non_exit_remove = false",
        refused="cron_minute",
        runs=False,
    ),
    "checkpoint_exit_code": Form("checkpoint_exit_code = 85\ntransfer_checkpoint_files = in1.dat"),
    "leave_in_queue": Form("leave_in_queue = (JobStatus == 4) && (time() - CompletionDate < 5)"),
    "job lease": Form("job_lease_duration = 1200\nkill_sig = SIGINT\nwant_graceful_removal = true"),
    # Files and environment
    "transfer": Form(
        "transfer_input_files = in1.dat, in2.dat\nshould_transfer_files = YES\n"
        "when_to_transfer_output = ON_EXIT_OR_EVICT\npreserve_relative_paths = true\n"
        "output = out.$(Cluster).$(Process)\nerror = err.$(ClusterId)\nlog = log.$(ClusterId)"
    ),
    "transfer plugin": Form(
        "transfer_input_files = file:///etc/hostname\nshould_transfer_files = YES"
    ),
    "remaps": Form(
        'transfer_output_files = ""\ntransfer_output_remaps = "a=b"\ninitialdir = /home/alice/forms'
    ),
    "environment": Form(
        "getenv = HOME, PATH\nenvironment = \"A=1 B='two words' C=$(Process)\"\n"
        'arguments = "\'two words\' ""quoted"""'
    ),
    "batch name": Form("batch_name = nightly\ndescription = nightly run of $(Cluster)"),
    "stream": Form("stream_output = true\nstream_error = true\noutput = s.out"),
    "job set": Form("jobset_name = sweep", runs=True),
    "spool": Form(args=("-spool",)),
    "remote": Form(args=("-remote", "head.testbed")),
    "name": Form(args=("-name", "head.testbed")),
    "append": Form(args=("-append", "request_memory = 300")),
    # Universes
    "attributes of its own": Form(
        'My.Custom = 3\n+AnotherAttr = {1, 2, 3}\n+Nested = [a = 1; b = "x"]'
    ),
    "local universe": Form("universe = local", refused=UNIVERSE),
    "scheduler universe": Form("universe = scheduler", refused=UNIVERSE),
    "parallel universe": Form(
        "universe = parallel\nmachine_count = 2",
        refused="a parallel job gets no promise where jobs share slots (share_nodes)",
        runs=False,
    ),
}
"""By what is special about it."""

WRONG: dict[str, tuple[str, str]] = {
    "a deadline in words": ('+RtDeadline = "tomorrow"', "RtDeadline must be a number"),
    "no deadline": ("+RtDeadline = undefined_name + 60", "RtDeadline must be a number"),
    "a deadline of the past": ("+RtDeadline = time() - 60", "RtDeadline"),
    "a deadline of another age": ("+RtDeadline = 1.0e300", "RtDeadline must be"),
    "no run time": ("+RtRunTime = 0", "RtRunTime must be a number of seconds above 0"),
    "too large": ("request_cpus = 4000", "no slot has 4000 CPUs"),
    "too much memory": ("request_memory = 9000T", "no slot has"),
    "no such machine": ('requirements = Machine == "nowhere"', "no slot meets"),
    "no such attribute": ("requirements = HasNothingOfThat", "no slot meets"),
    "other GPUs": ("request_gpus = 1\nrequire_gpus = Capability > 90", "require_gpus"),
    "memory that nobody knows": ("request_memory = NoSuchName * 2", "request_memory has no value"),
    "a misspelt attribute": ("+RtDeadlin = 5", "RtDeadline"),
    "odds of a text": ('+RtOdds = "many"', "RtOdds must be"),
}
"""Lines that are wrong, and what their user reads."""
