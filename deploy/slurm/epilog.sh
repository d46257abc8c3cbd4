#!/bin/sh
# Slurm Epilog: tells the node agent that a job has ended on this node.
#
#   slurm.conf:  Epilog=/etc/rootrank/slurm/epilog.sh
#
# As prolog.sh: one line, no Slurm command, exit 0 whatever happens.

settings=/etc/rootrank/slurm.env

tell() {
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    LC_ALL=C
    export PATH LC_ALL
    umask 022
    [ -r "$settings" ] && . "$settings"
    folder=${ROOTRANK_JOBS_DIR:-/var/spool/rootrank}/jobs

    case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) return ;; esac
    job=$SLURM_JOB_ID
    het=${SLURM_HET_JOB_ID:-${SLURM_JOB_HET_ID:-}}
    case $het in '' | *[!0-9]*) het= ;; esac

    line="job.end job=${het:-$job} scheduler=slurm"
    attempt=${SLURM_RESTART_COUNT:-${SLURM_JOB_RESTART_COUNT:-}}
    case $attempt in '' | *[!0-9]*) ;; *) line="$line attempt=$attempt" ;; esac
    # Newer Slurm says how it ended: `status:signal`, or one number with the signal in the low byte.
    code=${SLURM_JOB_EXIT_CODE2:-${SLURM_JOB_EXIT_CODE:-}}
    case $code in '' | *[!0-9:]*) ;; *) line="$line exit=$code" ;; esac

    now=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
    case $now in *N* | *%*) now=$(date -u +%Y-%m-%dT%H:%M:%SZ) ;; esac
    printf '%s rootrank: %s\n' "$now" "$line" >>"$folder/slurm-$job.jobs"
}

(tell) >/dev/null 2>&1 </dev/null
exit 0
