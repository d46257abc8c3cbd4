-- Whether the marked line of `rootrank-shipper check --self-test` is stored: as a line, and as the event it becomes.
SELECT
    (
        SELECT count() FROM raw_lines
        WHERE run = 'live' AND cluster = {cluster:String} AND reporter = {reporter:String} AND source = 'self_test'
            AND day >= today() - 1 AND endsWith(Body, {token:String})
    ) AS lines,
    (
        SELECT count() FROM events
        WHERE run = 'live' AND cluster = {cluster:String} AND name = 'agent.self_test'
            AND day >= today() - 1 AND attributes['mark'] = {token:String}
    ) AS events
