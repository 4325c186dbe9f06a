-- The tables of one namespace, in a schema of its own. `schema.py` puts the name of the schema in place of {schema}.
-- Text that a client has written (ids, URIs, names of state) is bytea: PostgreSQL's text cannot contain a zero. A principal is its SHA-256:
-- an index has no room for long ones. `task.name` is the principal itself.
-- Columns that change with every call are in no index, so that PostgreSQL can update a row within its page (HOT).

CREATE TABLE {schema}.about (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    incarnations bigint NOT NULL DEFAULT 0,
    news bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.about (format) VALUES ({format});

-- Sums over all sessions and tasks, in parts: each transaction changes a part that no other one has locked.
CREATE TABLE {schema}.total (
    part integer PRIMARY KEY,
    bytes bigint NOT NULL DEFAULT 0,
    sessions bigint NOT NULL DEFAULT 0,
    tasks bigint NOT NULL DEFAULT 0,
    task_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO {schema}.total (part) SELECT generate_series(0, 63);

-- Locked by commands that must come one after another.
CREATE TABLE {schema}.gate (name text PRIMARY KEY);
INSERT INTO {schema}.gate VALUES ('sessions'), ('tasks'), ('areas');

CREATE TABLE {schema}.session (
    sid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL UNIQUE,
    principal bytea NOT NULL,
    numbers double precision[] NOT NULL,
    more bytea NOT NULL DEFAULT '',
    writer text COLLATE "C" NOT NULL DEFAULT '',
    number bigint NOT NULL DEFAULT 0,
    hint double precision NOT NULL,
    detached boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX session_principal ON {schema}.session (principal);
CREATE INDEX session_hint ON {schema}.session (hint);
CREATE INDEX session_detached ON {schema}.session (sid) WHERE detached;

-- `ended`: the value of a field f:<stream>, for the order in which complete streams ended.
CREATE TABLE {schema}.field (
    sid bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    ended bytea,
    PRIMARY KEY (sid, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX field_ended ON {schema}.field (ended) WHERE ended IS NOT NULL;

CREATE TABLE {schema}.event (
    sid bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    tag bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (sid, stream, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Streams that a closed session has left for their readers. Their events stay where they were.
CREATE TABLE {schema}.lingering (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sid bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    head bytea NOT NULL,
    bytes bigint NOT NULL,
    until double precision NOT NULL
);
CREATE INDEX lingering_key ON {schema}.lingering (key, stream);

CREATE TABLE {schema}.subscription (
    uri bytea NOT NULL,
    sid bigint NOT NULL,
    digest bytea GENERATED ALWAYS AS (sha256(uri)) STORED,
    PRIMARY KEY (sid, digest)
);
CREATE INDEX subscription_uri ON {schema}.subscription (digest);

-- In which sessions an incarnation has written, and may have work.
CREATE TABLE {schema}.work (
    owner text COLLATE "C" NOT NULL,
    sid bigint NOT NULL,
    PRIMARY KEY (owner, sid)
);
CREATE INDEX work_session ON {schema}.work (sid);

-- State. A session's area has its key as its name and no `due`.
CREATE TABLE {schema}.area (
    name text COLLATE "C" PRIMARY KEY,
    principal bytea NOT NULL,
    own boolean NOT NULL DEFAULT false,
    ttl double precision,
    due double precision,
    head bytea NOT NULL DEFAULT '',
    held bigint NOT NULL DEFAULT 0,
    ops bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX area_due ON {schema}.area (due) WHERE due IS NOT NULL;
CREATE INDEX area_principal ON {schema}.area (principal) WHERE due IS NOT NULL;

CREATE TABLE {schema}.cell (
    area text COLLATE "C" NOT NULL,
    field bytea NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL,
    digest bytea GENERATED ALWAYS AS (sha256(field)) STORED,
    PRIMARY KEY (area, digest)
) WITH (fillfactor = 70);

CREATE TABLE {schema}.op (
    area text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    op text COLLATE "C" NOT NULL,
    result text NOT NULL,
    PRIMARY KEY (area, n)
);
CREATE INDEX op_name ON {schema}.op (area, op);

-- The kept bytes of each principal (`limpet.core.rules.state`).
CREATE TABLE {schema}.kept (principal bytea PRIMARY KEY, bytes bigint NOT NULL) WITH (fillfactor = 50);

CREATE TABLE {schema}.task (
    key text COLLATE "C" PRIMARY KEY,
    principal bytea NOT NULL,
    name bytea NOT NULL,
    version bigint NOT NULL,
    expires double precision NOT NULL,
    owner text COLLATE "C" NOT NULL,
    value bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX task_principal ON {schema}.task (principal);
CREATE INDEX task_owner ON {schema}.task (owner) WHERE owner <> '';
CREATE INDEX task_expires ON {schema}.task (expires);

-- `until` is 0 after the incarnation was declared dead, at the time `died`.
CREATE TABLE {schema}.lease (
    owner text COLLATE "C" PRIMARY KEY,
    replica text COLLATE "C" NOT NULL,
    until double precision NOT NULL,
    since double precision NOT NULL,
    renewed double precision NOT NULL,
    seconds double precision NOT NULL,
    died double precision
) WITH (fillfactor = 50);

-- `taken`: the command that has removed a request. The row stays until a sweep, so that the command may be sent again.
CREATE TABLE {schema}.inbox (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    replica text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    expires double precision NOT NULL,
    payload bytea NOT NULL,
    taken text,
    UNIQUE (replica, name)
);

CREATE TABLE {schema}.news (
    n bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    at double precision NOT NULL,
    event bytea NOT NULL
);

CREATE TABLE {schema}.secret (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL, until double precision NOT NULL);

CREATE TABLE {schema}.closing (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event text COLLATE "C" NOT NULL UNIQUE,
    at double precision NOT NULL,
    opened bytea NOT NULL,
    variable bytea NOT NULL,
    reason text NOT NULL
);

CREATE TABLE {schema}.notice (replica text COLLATE "C" PRIMARY KEY, until double precision NOT NULL, value bytea NOT NULL)
    WITH (fillfactor = 50);
