-- question: By which steps did the root of an incident lead to the end, and which lines prove it?
-- param incident:String | the incident's id
-- param run:String = | live, replay or drill; empty: live if it is known there, else any
-- param run_id:String = | only this run; empty: of several replays or drills the newest
-- example: rootrank query chain --param incident=3f9a61c20b7d4e55
WITH
    (
        SELECT argMax((run, run_id), (run = 'live', heard_at, run_id))
        FROM
        (
            SELECT DISTINCT run, run_id
            FROM chain_steps
            WHERE incident_id = {incident:String} AND ({run:String} = '' OR run = {run:String})
                AND ({run_id:String} = '' OR run_id = {run_id:String})
        ) AS held
        LEFT JOIN runs_heard USING (run, run_id)
    ) AS newest
SELECT
    step, role, event, place, at, error_ns, round(lag_ns / 1e9, 3) AS lag_s, count, ranks,
    after_steps, after_order, after_why, evidence_source, evidence_line_no, evidence_offset, evidence_text,
    run, run_id
FROM chain_steps
WHERE incident_id = {incident:String} AND (run, run_id) = newest
ORDER BY step
