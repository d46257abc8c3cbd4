#!/bin/sh
# Slurm Prolog: tells the node agent that a job begins on this node.
#
#   slurm.conf:  Prolog=/etc/rootrank/slurm/prolog.sh
#                PrologFlags=Alloc      (else it runs at the first step, not when the job gets the node)
#
# Writes one line into a file of the job's own, calls no Slurm command, and exits 0 whatever happens: a prolog that
# fails drains the node. Settings come from a root-owned file; nothing of them comes from the user.

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

    line="job.start job=${het:-$job} scheduler=slurm"
    attempt=${SLURM_RESTART_COUNT:-${SLURM_JOB_RESTART_COUNT:-}}
    add attempt "$attempt"
    add uid "${SLURM_JOB_UID:-}"
    add user "${SLURM_JOB_USER:-}"
    add partition "${SLURM_JOB_PARTITION:-}"
    add nodes "${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-}}"
    add nodelist "${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}}"
    add gpus "${SLURM_JOB_GPUS:-}"
    add array "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}}"
    add component "${het:+$job}"
    add node "${SLURMD_NODENAME:-}"

    printf '%s rootrank: %s\n' "$(stamp)" "$line" >>"$folder/slurm-$job.jobs"
}

# The time with nanoseconds, where date knows them.
stamp() {
    now=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
    case $now in *N* | *%*) now=$(date -u +%Y-%m-%dT%H:%M:%SZ) ;; esac
    printf '%s' "$now"
}

# key and value at the end of the line; what could be mistaken for another word or line becomes `_`.
add() {
    value=$2
    [ -n "$value" ] || return 0
    case $value in
    *[!A-Za-z0-9._@,:/+-]*) value=$(printf '%s' "$value" | tr -c '[]A-Za-z0-9._@,:/+-' '_') ;;
    esac
    [ ${#value} -le 400 ] || value=$(printf '%.400s' "$value")
    line="$line $1=$value"
}

(tell) >/dev/null 2>&1 </dev/null
exit 0
