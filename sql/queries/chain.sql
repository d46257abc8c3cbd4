-- question: By which steps did the root of an incident lead to the end, and which lines prove it?
-- param incident:String | the incident's id
-- param run:String = | live, replay or drill; empty: any
-- example: rootrank query chain --param incident=3f9a61c20b7d4e55
SELECT
    step, role, event, place, at, error_ns, round(lag_ns / 1e9, 3) AS lag_s, count, ranks,
    after_steps, after_order, after_why, evidence_source, evidence_line_no, evidence_offset, evidence_text
FROM chain_steps
WHERE incident_id = {incident:String} AND ({run:String} = '' OR run = {run:String})
ORDER BY run, run_id, step
