-- question: Which incidents are there, newest first?
-- param run:String = live | live, replay or drill; empty: all
-- param cluster:String = | only this cluster
-- param class:String = | only this class or domain, such as hardware or hardware/gpu_xid_79
-- param state:String = | open, resolved, retracted or superseded
-- param limit:UInt32 = 50 | how many
-- example: rootrank query incidents --param run=replay
SELECT
    incident_id, started_at, state, verdict, severity, class, xid,
    culprit_nodes, culprit_ranks, culprit_gpus, round(confidence, 2) AS confidence,
    job_ids, action_kind, action_target, explanation, revision, cluster, run, run_id
FROM incidents
WHERE ({run:String} = '' OR run = {run:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND ({class:String} = '' OR class = {class:String} OR domain = {class:String})
    AND ({state:String} = '' OR state = {state:String})
ORDER BY started_at DESC NULLS LAST, incident_id
LIMIT {limit:UInt32}
