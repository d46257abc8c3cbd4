-- Where nodes hang and what they are, as their agents and the agent of the control plane tell it (labels, Slurm's topology,
-- tables). Both are spans of fleet_spans with the facts as columns. A node is called as its row calls it.
CREATE OR REPLACE VIEW topology AS
SELECT
    run, run_id, cluster, if(unit_kind = 'node', unit, node) AS node, source, started_at, ended_at,
    facts['rack'] AS rack, facts['nvlink_domain'] AS nvlink_domain, facts['leaf_switch'] AS leaf_switch,
    facts['power_feed'] AS power_feed, known_at
FROM fleet_spans
WHERE rack != '' OR nvlink_domain != '' OR leaf_switch != '' OR power_feed != '';

CREATE OR REPLACE VIEW node_facts AS
SELECT
    run, run_id, cluster, unit_kind, unit, if(unit_kind = 'node', unit, node) AS node, source, started_at, ended_at,
    facts['name'] AS name, facts['driver'] AS driver, facts['sku'] AS sku, facts['pci_bus_id'] AS pci_bus_id,
    facts['serial'] AS serial, known_at
FROM fleet_spans
WHERE kind IN ('installed', 'facts') AND (driver != '' OR sku != '' OR serial != '' OR pci_bus_id != '');

ALTER TABLE topology MODIFY COMMENT 'Where a node hangs, from when to when: rack, NVLink domain, leaf switch, power feed. 5 years.';

ALTER TABLE topology
    COMMENT COLUMN node 'the node',
    COMMENT COLUMN rack 'empty: not told',
    COMMENT COLUMN nvlink_domain 'GPUs that reach each other by NVLink; empty: not told',
    COMMENT COLUMN leaf_switch 'the switch that its cards are plugged into; empty: not told',
    COMMENT COLUMN power_feed 'empty: not told';

ALTER TABLE node_facts MODIFY COMMENT 'What a node or GPU is: driver, model, serial number, address. 5 years.';

ALTER TABLE node_facts
    COMMENT COLUMN node 'the machine, of a GPU the one it sits in',
    COMMENT COLUMN name 'what the node calls itself, where that is not its id',
    COMMENT COLUMN driver 'version of the driver',
    COMMENT COLUMN sku 'model',
    COMMENT COLUMN pci_bus_id 'of a GPU',
    COMMENT COLUMN serial 'of a GPU';
