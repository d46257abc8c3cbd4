-- question: Which Xid errors do GPUs of which SKU and driver report, and how often per GPU-year in service? Episodes are
-- question: counted, not lines; top share: of the GPU with the most episodes.
-- param from:String = | first UTC day, such as 2026-03-01; empty: 28 days ago
-- param to:String = | last UTC day; empty: today
-- param cluster:String = | only this cluster
-- param run:String = live | live, replay or drill
-- example: rootrank query xid_by_sku_and_driver --param from=2026-03-01 --param to=2026-03-31
WITH
    if({from:String} = '', today() - 28, toDate(parseDateTime({from:String}, '%Y-%m-%d', 'UTC'))) AS first_day,
    if({to:String} = '', today(), toDate(parseDateTime({to:String}, '%Y-%m-%d', 'UTC'))) AS last_day,
    exposed AS
    (
        SELECT sku, driver, uniqExact(unit_id) AS gpus, sum(toUInt128(in_service_ns)) / 3.15576e16 AS gpu_years
        FROM exposure_days
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day AND unit_kind = 'gpu'
            AND ({cluster:String} = '' OR cluster = {cluster:String})
        GROUP BY sku, driver
    ),
    told AS
    (
        SELECT sku, driver, xid, unit_id, sum(lines) AS lines, sum(episodes) AS episodes
        FROM episode_days
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day AND name = 'gpu.xid' AND xid IS NOT NULL
            AND ({cluster:String} = '' OR cluster = {cluster:String})
        GROUP BY sku, driver, xid, unit_id
    )
SELECT
    t.sku AS sku, t.driver AS driver, t.xid AS xid, sum(t.episodes) AS episodes, sum(t.lines) AS lines,
    count() AS gpus_with_it, max(t.episodes) / sum(t.episodes) AS top_share, any(e.gpus) AS gpus,
    any(e.gpu_years) AS gpu_years, if(gpu_years > 0, episodes / gpu_years, NULL) AS per_gpu_year
FROM told AS t
LEFT JOIN exposed AS e USING (sku, driver)
GROUP BY sku, driver, xid
ORDER BY episodes DESC, xid, sku, driver
