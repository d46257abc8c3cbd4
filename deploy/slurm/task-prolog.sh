#!/bin/sh
# Slurm TaskProlog: tells the node agent which task of a step starts here, as which process.
#
#   slurm.conf:  TaskProlog=/etc/rootrank/slurm/task-prolog.sh
#
# Runs as the user, once a task. Slurm takes `export NAME=value` and `print text` from its output, so nothing else may
# be printed. Exits 0 whatever happens. Settings (/etc/rootrank/slurm.env, all optional):
#
#   ROOTRANK_JOBS_DIR=/var/spool/rootrank   the folder that the agent watches ([jobs] dir)
#   ROOTRANK_NCCL_DEBUG_DIR=/var/log/nccl   a file of NCCL's own for each process; what the user has set stays
#   ROOTRANK_NCCL_DEBUG=WARN                how much NCCL writes into it
#   ROOTRANK_PREFLIGHT=1                    rootrank-shipper preflight, once a node; its lines go to the job's output
#   ROOTRANK_SHIPPER=/usr/bin/rootrank-shipper

settings=/etc/rootrank/slurm.env

tell() {
    umask 022
    folder=${ROOTRANK_JOBS_DIR:-/var/spool/rootrank}/marks
    case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) return ;; esac
    # The batch script and the step of the allocation are no tasks of a run.
    case ${SLURM_STEP_ID:-} in '' | *[!0-9]* | 42949672*) return ;; esac
    [ -d "$folder" ] || return

    line="job.task job=$SLURM_JOB_ID scheduler=slurm"
    add het "${SLURM_HET_JOB_ID:-}"
    add attempt "${SLURM_RESTART_COUNT:-0}"
    add step "$SLURM_STEP_ID"
    add task "${SLURM_PROCID:-}"
    add local_task "${SLURM_LOCALID:-}"
    add tasks "${SLURM_STEP_NUM_TASKS:-${SLURM_NTASKS:-}}"
    add nodes "${SLURM_STEP_NUM_NODES:-${SLURM_NNODES:-}}"
    add gpus "${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}}"
    add visible "${CUDA_VISIBLE_DEVICES:-}"
    add pid "${SLURM_TASK_PID:-}"
    add user "${SLURM_JOB_USER:-}"
    add node "${SLURMD_NODENAME:-}"

    now=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
    case $now in *N* | *%*) now=$(date -u +%Y-%m-%dT%H:%M:%SZ) ;; esac
    # A new file under a name that nobody can guess: everybody may write into the folder.
    file=$(mktemp "$folder/slurm-$SLURM_JOB_ID-XXXXXXXXXX") || return
    printf '%s rootrank: %s\n' "$now" "$line" >"$file"
    chmod 644 "$file"
}

add() {
    value=$2
    [ -n "$value" ] || return 0
    case $value in
    *[!A-Za-z0-9._@,:/+-]*) value=$(printf '%s' "$value" | tr -c 'A-Za-z0-9._@,:/+-' '_') ;;
    esac
    [ ${#value} -le 400 ] || value=$(printf '%.400s' "$value")
    line="$line $1=$value"
}

# NCCL's own files: only where the site asks for them and the user has not chosen.
nccl() {
    [ -n "${ROOTRANK_NCCL_DEBUG_DIR:-}" ] && [ -z "${NCCL_DEBUG_FILE:-}" ] || return
    printf 'export NCCL_DEBUG_FILE=%s/%%h.%s.%%p.log\n' "$ROOTRANK_NCCL_DEBUG_DIR" "${SLURM_JOB_ID:-0}"
    [ -n "${NCCL_DEBUG:-}" ] || printf 'export NCCL_DEBUG=%s\n' "${ROOTRANK_NCCL_DEBUG:-WARN}"
}

preflight() {
    [ "${ROOTRANK_PREFLIGHT:-0}" = 1 ] && [ "${SLURM_LOCALID:-0}" = 0 ] || return
    case ${SLURM_STEP_ID:-} in '' | *[!0-9]* | 42949672*) return ;; esac
    timeout 5 "${ROOTRANK_SHIPPER:-rootrank-shipper}" preflight | sed 's/^/print rootrank preflight: /'
}

with_settings() {
    LC_ALL=C
    export LC_ALL
    # The user's environment chooses nothing here.
    unset ROOTRANK_JOBS_DIR ROOTRANK_NCCL_DEBUG_DIR ROOTRANK_NCCL_DEBUG ROOTRANK_PREFLIGHT ROOTRANK_SHIPPER
    [ -r "$settings" ] && . "$settings"
    (PATH=/usr/bin:/bin; tell) >/dev/null
    nccl
    preflight
}

(with_settings) 2>/dev/null </dev/null
exit 0
