-- The parts of a Materialize target that the program reads and changes, on PostgreSQL. Running this again makes all of it empty.
DROP SCHEMA IF EXISTS public, mz_catalog, mz_internal CASCADE;
CREATE SCHEMA public;
CREATE SCHEMA mz_catalog;
CREATE SCHEMA mz_internal;
GRANT USAGE, CREATE ON SCHEMA public TO bot;
GRANT USAGE ON SCHEMA mz_catalog, mz_internal TO bot;

CREATE TABLE mz_catalog.mz_clusters (
  id text PRIMARY KEY, name text NOT NULL UNIQUE, managed boolean, size text, replication_factor bigint);
CREATE TABLE mz_catalog.mz_cluster_replicas (
  id text PRIMARY KEY, name text NOT NULL, cluster_id text NOT NULL, size text, availability_zone text,
  UNIQUE (cluster_id, name));
CREATE TABLE mz_catalog.mz_cluster_replica_sizes (size text, processes bigint, workers bigint, credits_per_hour numeric);
CREATE TABLE mz_catalog.mz_indexes (id text, name text, cluster_id text);
CREATE TABLE mz_catalog.mz_materialized_views (id text, name text, cluster_id text);
CREATE TABLE mz_catalog.mz_sources (id text, name text, type text, cluster_id text);
CREATE TABLE mz_catalog.mz_sinks (id text, name text, type text, cluster_id text);
CREATE TABLE mz_internal.mz_hydration_statuses (
  object_id text, replica_id text, hydrated boolean, UNIQUE (object_id, replica_id));
CREATE TABLE mz_internal.mz_cluster_replica_status_history (
  replica_id text, process_id bigint, status text, reason text, occurred_at timestamptz);
CREATE TABLE mz_internal.mz_statement_execution_history_redacted (
  id text, cluster_id text, application_name text, began_at timestamptz, finished_at timestamptz, finished_status text);
GRANT SELECT ON ALL TABLES IN SCHEMA mz_catalog, mz_internal TO bot;

-- What hydrates on the replicas of a cluster, by kind. A sink and some sources do on one replica, until that is dropped.
CREATE VIEW mz_internal.stand_in_objects AS
  SELECT id, 'index' AS kind, cluster_id, false AS single FROM mz_catalog.mz_indexes
  UNION ALL SELECT id, 'materialized-view', cluster_id, false FROM mz_catalog.mz_materialized_views
  UNION ALL SELECT id, type, cluster_id, type IN ('postgres', 'mysql', 'sql-server') FROM mz_catalog.mz_sources
    WHERE cluster_id IS NOT NULL AND type <> 'webhook'
  UNION ALL SELECT id, 'sink', cluster_id, true FROM mz_catalog.mz_sinks;
-- On which replicas that are there an object is hydrated.
CREATE VIEW mz_internal.stand_in_running AS
  SELECT h.object_id, h.replica_id FROM mz_internal.mz_hydration_statuses h
  JOIN mz_catalog.mz_cluster_replicas r ON r.id = h.replica_id WHERE h.hydrated;
-- Which clusters permit one replica; numbers of ids.
CREATE TABLE mz_internal.stand_in_single (cluster_id text);
-- What statements about replicas have changed, and how many hydrated replicas were left; a drop has no size.
CREATE TABLE mz_internal.stand_in_changes (number bigserial, cluster text, replica text, size text, hydrated_left bigint);
CREATE SEQUENCE mz_internal.stand_in_ids;

INSERT INTO mz_catalog.mz_cluster_replica_sizes VALUES
  ('800cc', 1, 30, 8), ('25cc', 1, 1, 0.25), ('100cc', 1, 4, 1.0), ('50cc', 1, 2, 0.5), ('200cc', 1, 8, 2);
-- The system's own clusters are none of a user.
INSERT INTO mz_catalog.mz_clusters VALUES ('s1', 'mz_system', false), ('s2', 'mz_catalog_server', false);
INSERT INTO mz_catalog.mz_cluster_replicas VALUES ('s1', 'r1', 's1', '25cc');

CREATE FUNCTION mz_internal.stand_in_cluster(wanted text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE held record;
BEGIN
  SELECT id, managed INTO held FROM mz_catalog.mz_clusters WHERE name = wanted;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = format('unknown cluster ''%s''', wanted); END IF;
  IF held.managed THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = format('cannot modify managed cluster %s', wanted);
  END IF;
  RETURN held.id;
END $$;

CREATE FUNCTION mz_internal.stand_in_hydrated(owner text) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM mz_catalog.mz_cluster_replicas r WHERE r.cluster_id = owner
    AND EXISTS (SELECT FROM mz_internal.mz_hydration_statuses h WHERE h.replica_id = r.id)
    AND NOT EXISTS (SELECT FROM mz_internal.stand_in_objects o WHERE o.cluster_id = owner
      AND NOT EXISTS (SELECT FROM mz_internal.stand_in_running n
        WHERE n.object_id = o.id AND (n.replica_id = r.id OR o.single)))
$$;

-- SECURITY DEFINER: the catalog is changed by statements alone.
CREATE PROCEDURE mz_internal.create_replica(cluster text, replica text, wanted text)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE owner text := mz_internal.stand_in_cluster(cluster);
BEGIN
  IF EXISTS (SELECT FROM mz_catalog.mz_cluster_replicas r WHERE r.cluster_id = owner AND r.name = replica) THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000',
      MESSAGE = format('cannot create multiple replicas named ''%s'' on cluster ''%s''', replica, cluster);
  END IF;
  IF NOT EXISTS (SELECT FROM mz_catalog.mz_cluster_replica_sizes s WHERE s.size = wanted) THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = format('unknown cluster replica size %s', wanted);
  END IF;
  IF EXISTS (SELECT FROM mz_internal.stand_in_single WHERE cluster_id = owner)
    AND EXISTS (SELECT FROM mz_catalog.mz_cluster_replicas r WHERE r.cluster_id = owner) THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000',
      MESSAGE = 'cannot create more than one replica of a cluster containing sources or sinks';
  END IF;
  INSERT INTO mz_catalog.mz_cluster_replicas
    VALUES ('u' || nextval('mz_internal.stand_in_ids'), replica, owner, wanted);
  INSERT INTO mz_internal.stand_in_changes (cluster, replica, size, hydrated_left)
    VALUES (cluster, replica, wanted, mz_internal.stand_in_hydrated(owner));
END $$;

CREATE PROCEDURE mz_internal.drop_replica(cluster text, replica text, if_exists boolean)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE owner text := mz_internal.stand_in_cluster(cluster);
BEGIN
  DELETE FROM mz_catalog.mz_cluster_replicas r WHERE r.cluster_id = owner AND r.name = replica;
  IF FOUND THEN
    INSERT INTO mz_internal.stand_in_changes (cluster, replica, hydrated_left)
      VALUES (cluster, replica, mz_internal.stand_in_hydrated(owner));
  ELSIF NOT if_exists THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = format('unknown cluster replica ''%s''', replica);
  END IF;
END $$;
