-- Time at risk of each unit in each cohort over the days [first, last], as of a moment.
SELECT
    cluster, unit_kind, unit, node, sku, driver, rack, position, firmware, batch, sum(installed_ns), sum(in_service_ns),
    sum(busy_ns), sum(observed_ns)
FROM exposure_days_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
GROUP BY cluster, unit_kind, unit, node, sku, driver, rack, position, firmware, batch
ORDER BY cluster, unit_kind, unit, node, sku, driver, rack, position, firmware, batch
