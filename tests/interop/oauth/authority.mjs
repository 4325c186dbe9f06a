// An authorization server of another project: oidc-provider, with its own pages for the sign-in and the consent of users.
//
// The only argument is JSON: the resource, its scopes, what tokens for it name as their audience (by default the resource),
// whether clients may register, and the clients registered by hand.
// It prints its issuer, and then one line of JSON for each event. A line on stdin makes it sign with a new key; the
// former keys stay published, as they must as long as tokens of them are valid.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { generateKeyPairSync, randomUUID } from 'node:crypto';

const require = createRequire(new URL('../../../.node/authority/package.json', import.meta.url));
const { errors, Provider } = require('oidc-provider');

// Its notices are for people; stdout is for the tests.
console.info = console.error;
const config = JSON.parse(process.argv[2]);
const say = line => process.stdout.write(JSON.stringify(line) + '\n');

const listener = createServer((request, response) => handler(request, response));
await once(listener.listen(0, '127.0.0.1'), 'listening');
const issuer = `http://127.0.0.1:${listener.address().port}`;

// The providers of this process share it: a new key is not a new authorization server.
const records = new Map();

class Memory {
    constructor(model) {
        this.model = model;
    }

    key = id => `${this.model}:${id}`;
    find = async id => records.get(this.key(id));
    findByUid = async uid => [...records.values()].find(record => record.uid === uid && record.kind === this.model);
    upsert = async (id, record) => void records.set(this.key(id), record);
    consume = async id => void (records.get(this.key(id)).consumed = Math.floor(Date.now() / 1000));
    destroy = async id => void records.delete(this.key(id));
    revokeByGrantId = async grant => {
        for (const [key, record] of records) if (record.grantId === grant) records.delete(key);
    };
}

const keys = [];
let handler;
rotate();
say({ event: 'ready', issuer, key: keys[0].kid });
for await (const _ of createInterface({ input: process.stdin })) {
    rotate();
    say({ event: 'rotated', key: keys[0].kid });
}
process.exit();

// A provider reads its keys when it is made.
function rotate() {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    keys.unshift({ ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'ES256' });
    const provider = new Provider(issuer, {
        adapter: Memory,
        jwks: { keys },
        clients: config.clients,
        scopes: ['openid', 'offline_access', ...config.scopes.split(' ')],
        cookies: { keys: ['of the tests'] },
        clientDefaults: { id_token_signed_response_alg: 'ES256' },
        enabledJWA: { idTokenSigningAlgValues: ['ES256'] },
        extraClientMetadata: { properties: ['scope'], validator: forgetScope },
        findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
        pkce: { required: () => true },
        features: {
            clientCredentials: { enabled: true },
            devInteractions: { enabled: true },
            registration: { enabled: config.registration },
            resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer, useGrantedResource: () => true },
        },
    });
    observe(provider);
    handler = provider.callback();
}

// oidc-provider grants a client only the scopes that it registered with. Three SDKs register with the scopes of their first
// challenge, so that they could never step up.
function forgetScope(_ctx, _key, _value, metadata) {
    if (config.registration) delete metadata.scope;
}

function resourceServer(_, resource) {
    if (resource !== config.resource) throw new errors.InvalidTarget();
    const { audience = resource, scopes: scope } = config;
    return { audience, scope, accessTokenFormat: 'jwt', accessTokenTTL: 3600, jwt: { sign: { alg: 'ES256' } } };
}

function observe(provider) {
    const report = (event, ctx, client = ctx.oidc.client) => {
        const { grant_type: grant, scope, resource, error } = ctx.oidc.params ?? ctx.oidc.body ?? {};
        say({ event, client: client?.clientName ?? client?.clientId, grant, scope, resource, error });
    };
    provider.on('registration_create.success', (ctx, client) => report('registered', ctx, client));
    provider.on('authorization.success', ctx => report('agreed', ctx));
    provider.on('grant.success', ctx => report('granted', ctx));
    for (const name of ['registration_create', 'authorization', 'grant', 'server'])
        provider.on(name === 'server' ? 'server_error' : `${name}.error`, (ctx, error) => {
            say({ event: 'refused', client: ctx.oidc?.client?.clientName, error: `${error.message}: ${error.error_description}` });
        });
}
