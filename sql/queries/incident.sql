-- question: What does each revision of one incident say?
-- param incident:String | the incident's id
-- param run:String = | live, replay or drill; empty: any
-- example: rootrank query incident --param incident=3f9a61c20b7d4e55
SELECT
    revision, verdict, state, class, xid, culprit_nodes, culprit_ranks, culprit_gpus, round(confidence, 2) AS confidence,
    started_at, detected_at, why_unknown, explanation, action_kind, action_target, action_why, last_checkpoint,
    full_coverage, gap_count, engine_version, rules_digest, run, run_id, incident
FROM incident_revisions
WHERE incident_id = {incident:String} AND ({run:String} = '' OR run = {run:String})
ORDER BY run, run_id, revision
