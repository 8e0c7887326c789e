"""How users and their tools ask Slurm for jobs: the forms of the table in `test_slurm_forms`.

In our own words, in the styles of public scripts and workflow tools. Each form is a piece of shell
code: `$D` is the option for a deadline, or nothing, and `$J` a name for the job. All jobs have a
time limit, mostly of ten minutes.
"""

from typing import NamedTuple


class Form(NamedTuple):
    """A form.

    Attributes
    ----------
    name : str
        Of the form.
    command : str
        Shell code.
    refused : str
        What a refusal says where no promise can be given; empty: it is promised.
    whole_refused : str
        Likewise, only where promised jobs have whole nodes.
    """

    name: str
    command: str
    refused: str = ""
    whole_refused: str = ""


def plain(name: str, options: str, refused: str = "", whole_refused: str = "") -> Form:
    """Return a form that is sbatch with these options."""
    command = f"sbatch $D -J $J -t 10 {options} --wrap true"
    return Form(name, command, refused, whole_refused)


def script(name: str, lines: str, words: str = "") -> Form:
    """Return a form that is a script with these options, given to sbatch with these words."""
    options = "".join(f"#SBATCH {line.strip()}\n" for line in lines.splitlines() if line.strip())
    return Form(name, f"sbatch $D -J $J {words} <<'END'\n#!/bin/bash\n{options}\nsleep 1\nEND")


FORMS = (
    # while nodes are idle: Slurm then lets --test-only pass, and starts the first of a pipeline
    plain("--test-only", "--test-only -n 1 --mem=200"),
    Form(
        "a pipeline whose first job has no deadline",
        "first=$(sbatch --parsable -J first -t 10 --mem=200 --wrap true)\n"
        "sbatch $D -J $J -t 10 --mem=200 --dependency=afterok:$first --wrap true",
    ),
    Form(
        "a pipeline",
        "first=$(sbatch --parsable $D -J first -t 10 --mem=200 --wrap true)\n"
        "sbatch $D -J $J -t 10 --mem=200 --dependency=afterok:$first --wrap true",
    ),
    # workflow tools
    script(
        "Nextflow",
        """-o /dev/null
        --no-requeue
        --signal B:USR2@30
        -c 2
        -t 00:10:00
        --mem 400M""",
    ),
    plain(
        "Snakemake",
        "--parsable --output /dev/null --export=ALL --comment rule_align --mem 400 --ntasks=1 "
        "--cpus-per-task=2 -D /tmp",
    ),
    plain("Snakemake with MPI", "--parsable --export=ALL --ntasks=4 --mem-per-cpu 100 -D /tmp"),
    plain("Snakemake with a GPU", "--parsable --gpus=1 --cpus-per-gpu=2 --mem 400 --ntasks=1"),
    plain("Cromwell", "--wait -D /tmp -o /dev/null -e /dev/null -p all --mincpus=2 --mem=400"),
    script(
        "Dask",
        """-n 1
        --cpus-per-task=2
        --mem=400M
        -t 00:30:00
        -e /dev/null -o /dev/null""",
    ),
    script(
        "parsl",
        """--output=/dev/null
        --nodes=1
        --time=00:10:00
        --ntasks-per-node=1
        --exclusive""",
    ),
    script(
        "submitit",
        """--cpus-per-task=2
        --error=/dev/null --output=/dev/null
        --mem=400MB
        --nodes=1
        --ntasks-per-node=1
        --open-mode=append
        --signal=USR2@90
        --time=10
        --wckey=submitit""",
    ),
    script(
        "submitit array",
        """--array=0-3%2
        --cpus-per-task=1
        --nodes=1
        --ntasks-per-node=1
        --mem=400MB
        --time=10""",
    ),
    script(
        "submitit with GPUs",
        """--gpus-per-node=2
        --cpus-per-task=2
        --nodes=1 --ntasks-per-node=1 --time=10 --mem=400""",
    ),
    script(
        "Ray",
        """--nodes=2
        --exclusive
        --tasks-per-node=1
        --cpus-per-task=4
        --time=10""",
    ),
    plain("array of one-processor tasks", "-a 1-6 -n1 --mem=200"),
    plain("array with a throttle", "--array=1-8:2%2 -c1 --mem=200"),
    plain("array of GPU tasks", "--array=1-4 --gres=gpu:1 --mem=200"),
    # processors and tasks
    plain("one task", "-n1"),
    plain("-c", "-n1 -c2 --mem=200"),
    plain("--cpus-per-task=1", "--cpus-per-task=1 --mem=200"),
    plain("tasks of several processors", "-n 3 -c 2 --mem-per-cpu=100"),
    plain("tasks on several nodes", "-N 2 --ntasks-per-node=3 --mem=400"),
    plain("more tasks than a node has processors", "-n 12 --mem-per-cpu=100"),
    plain("--mincpus", "--mincpus=4 --mem=200"),
    plain("--tres-per-task=cpu", "-n2 --tres-per-task=cpu=2 --mem=200"),
    plain("--overcommit", "-n 20 -N1 --overcommit --mem=200"),
    plain("-N 1-4", "-N 1-4 --mem=200"),
    plain("-N 2", "-N 2 --mem=200"),
    plain("--use-min-nodes", "-N 1-2 --use-min-nodes --mem=200"),
    plain("--spread-job", "-n 2 --spread-job --mem-per-cpu=100"),
    # layouts
    plain("--hint=nomultithread", "-n 2 --hint=nomultithread --mem=200"),
    plain("--hint=multithread", "-n 2 --hint=multithread --mem=200"),
    plain("--hint=compute_bound", "-N 1 --hint=compute_bound --mem=200"),
    plain("--hint=memory_bound", "-N 1 --hint=memory_bound --mem=200"),
    plain("--ntasks-per-core", "-n 4 --ntasks-per-core=1 --mem=200"),
    plain("--ntasks-per-socket", "-n 2 --ntasks-per-socket=1 --mem=200"),
    plain("--threads-per-core", "-n 2 --threads-per-core=1 --mem=200"),
    plain("-B", "-N 1 -B 1:1:1 --mem=200"),
    plain("--extra-node-info", "-N 1 --extra-node-info=2 --mem=200"),
    plain("--sockets-per-node", "-N 1 --sockets-per-node=2 --mem=200"),
    plain("--cores-per-socket", "-N 1 --cores-per-socket=2 --mem=200"),
    plain("--distribution=block:cyclic", "-N 2 -n 4 --distribution=block:cyclic --mem=200"),
    plain("--distribution=plane", "-N 2 -n 4 -m plane=2 --mem=200"),
    plain("--switches", "-N 2 --switches=1 --mem=200"),
    plain("--switches with a time", "-N 2 --switches=1@10:00 --mem=200"),
    plain("--contiguous", "-N 1 --contiguous --mem=200"),
    plain("--contiguous on two nodes", "-N 2 --contiguous --mem=200"),
    # memory and disk
    plain("--mem=0", "-N 1 --mem=0"),
    plain("--mem in GiB", "-n 1 --mem=1G"),
    plain("--mem-per-cpu", "-n 2 --mem-per-cpu=300M"),
    plain("--tmp", "-N 1 --tmp=100 --mem=200"),
    # GPUs
    plain("--gres=gpu", "--gres=gpu --mem=200"),
    plain("--gres=gpu:1", "--gres=gpu:1 --mem=200"),
    plain("--gres with a type", "--gres=gpu:a:2 --mem=200"),
    plain("-G", "-G 1 --mem=200"),
    plain("--gpus with a type", "--gpus=a:2 --mem=200"),
    plain("--gpus on two nodes", "-N 2 --gpus=3 --mem=200"),
    plain("--gpus-per-node", "-N 2 --gpus-per-node=1 --mem=200"),
    plain("--gpus-per-task", "-n 2 --gpus-per-task=1 --mem=200"),
    plain("--gpus-per-task and -c", "-n 2 --gpus-per-task=a:1 -c 2 --mem=200"),
    plain("--tres-per-task=gres/gpu", "-n 2 --tres-per-task=cpu=2,gres/gpu=1 --mem=200"),
    plain("--ntasks-per-gpu", "--gpus=2 --ntasks-per-gpu=2 --mem=200"),
    plain("--ntasks-per-gpu and -n", "-n 2 --ntasks-per-gpu=1 --mem=200"),
    plain("--cpus-per-gpu", "--gpus-per-node=2 --cpus-per-gpu=2 --mem=200"),
    plain("--mem-per-gpu", "--gpus=1 --mem-per-gpu=200"),
    plain("--gpu-bind", "-n 2 --gpus-per-task=1 --gpu-bind=closest --mem=200"),
    # which nodes
    plain("-w", "-w fast1 --mem=200"),
    plain("-x", "-x fast1 --mem=200"),
    plain("-C", "-C slow --mem=200"),
    plain("-C with or", "-C 'fast|slow' --mem=200"),
    plain("-C with brackets", "-N 1 -C '[fast|slow]' --mem=200"),
    plain("-C with brackets on two nodes", "-N 2 -C '[fast|slow]' --mem=200"),
    plain("--prefer", "--prefer=fast --mem=200"),
    plain("--prefer of other nodes", "--prefer=slow --mem=200"),
    plain("--exclusive", "--exclusive -N 1"),
    plain("--exclusive=user", "--exclusive=user -N 1 --mem=200"),
    plain("--oversubscribe", "-s -n 1 --mem=200"),
    # times
    Form("--time in hours", "sbatch $D -J $J --time=0:10:00 --mem=200 --wrap true"),
    Form("--time in days", "sbatch $D -J $J -t 0-00:10 --mem=200 --wrap true"),
    Form("--time-min", "sbatch $D -J $J -t 1-0 --time-min=10 -x fast1 --mem=200 --wrap true"),
    plain("--begin", "--begin=now+30minutes --mem=200", "", "(--begin); it will be evaluated then"),
    plain("singleton", "-d singleton --mem=200"),
    # further commands and options
    Form("srun", "srun $D -J $J -t 10 -n1 --mem=200 true"),
    Form("srun on two nodes", "srun $D -J $J -t 10 -N 2 -l --mem=200 hostname"),
    Form("salloc", "salloc $D -J $J -t 10 -N 1 --mem=200 true"),
    Form("salloc --no-shell", "salloc $D -J $J -t 10 -n 1 -c 2 --mem=200 --no-shell"),
    plain("--wait", "-W -n 1 --mem=200"),
    plain("--parsable", "--parsable -n 1 --mem=200"),
    plain("a heterogeneous job", "-n 1 --mem=200 : -n 1 -c 2 --mem=200"),
    plain("mail, nice, requeue", "--mail-type=NONE --nice=10 --requeue --export=NONE --mem=200"),
    plain("--no-kill and more", "-k --open-mode=append --input=/dev/null --get-user-env --mem=200"),
    plain("--profile and more", "--profile=none --acctg-freq=30 --propagate=NONE --mem=200"),
    plain("--account and --qos", "-A physics -q normal --mem=200"),
    plain("--core-spec, which sites mostly ignore", "-S 1 --mem=200"),
    Form("SBATCH_TIMELIMIT", "SBATCH_TIMELIMIT=10 sbatch $D -J $J --mem=200 --wrap true"),
    Form("SBATCH_HINT", "SBATCH_HINT=nomultithread sbatch $D -J $J -t10 --mem=200 --wrap true"),
    Form("SBATCH_GPUS", "SBATCH_GPUS=1 sbatch $D -J $J -t10 --mem=200 --wrap true"),
    Form(
        "SBATCH_TRES_PER_TASK",
        "SBATCH_TRES_PER_TASK=cpu=2 sbatch $D -J $J -n1 -t10 --mem=200 --wrap true",
    ),
    Form(
        "SBATCH_THREADS_PER_CORE",
        "SBATCH_THREADS_PER_CORE=1 sbatch $D -J $J -t10 --mem=200 --wrap true",
    ),
    plain("--licenses", "-L soft:1 --mem=200", "", "a job that needs licences"),
    # what no promise can be given to
    Form(
        "scrontab",
        """printf '#SCRON %s\\n' --time=10 "--job-name=$J" $D >/tmp/$J.cron
echo '0 0 1 1 * true' >>/tmp/$J.cron
scrontab /tmp/$J.cron
status=$?
scrontab -r
exit $status""",
        "Access/permission denied",  # scrontab does not print the reason
    ),
    plain("--hold", "-H --mem=200", "leave --hold out, or use --begin"),
    plain("sizes in a list", "-N 1,3 --mem=200", "cannot plan with a list of node counts"),
    plain("--gpus-per-socket", "--gpus-per-socket=1 --sockets-per-node=2 --mem=200", "write --gpu"),
    plain("counts of features", "-N 2 -C '[fast*1&slow*1]' --mem=200", "it counts nodes"),
    plain("--reboot", "--reboot --mem=200", "cannot plan with --reboot"),
    Form(
        "without a time limit",
        "sbatch $D -J $J -p open --mem=200 --wrap true",
        "has no time limit, so its end cannot be promised; set --time",
    ),
)
