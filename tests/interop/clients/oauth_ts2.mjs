// The OAuth client of @modelcontextprotocol/client 2.x: one connection for each era, and on each the calls that the test
// names on stdin. The answer to a line is one line of JSON: by era, the result or the error.

import { execFile } from 'node:child_process';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

import { config, require, say } from './conversation.mjs';

const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require('@modelcontextprotocol/client');
const run = promisify(execFile);

// Keeps everything in memory. The application sends the user to the page, and waits for the redirect.
class Provider {
    redirectUrl = 'http://127.0.0.1:3000/callback';

    constructor(name) {
        this.clientMetadata = {
            client_name: name,
            redirect_uris: [this.redirectUrl],
            grant_types: ['authorization_code', 'refresh_token'],
            token_endpoint_auth_method: 'none',
            application_type: 'native'
        };
    }

    clientInformation = () => this.client;
    saveClientInformation = client => void (this.client = client);
    tokens = () => this.kept;
    saveTokens = tokens => void (this.kept = tokens);
    codeVerifier = () => this.verifier;
    saveCodeVerifier = verifier => void (this.verifier = verifier);
    redirectToAuthorization = url => void (this.page = url);

    async agreed() {
        const [program, ...args] = config.browser;
        const { stdout } = await run(program, [...args, this.page.href]);
        return new URL(stdout.trim()).searchParams;
    }
}

async function connect(era) {
    const provider = new Provider(`ts2-${era}`);
    let transport;
    // As its documents say: the action fails, the application finishes the authorization and does the action again.
    const authorized = async action => {
        try {
            return await action();
        } catch (error) {
            if (!(error instanceof UnauthorizedError)) throw error;
            await transport.finishAuth(await provider.agreed());
            return await action();
        }
    };
    const client = await authorized(async () => {
        transport = new StreamableHTTPClientTransport(new URL(config.url), { authProvider: provider });
        const fresh = new Client({ name: 'ts2', version: '1' }, { versionNegotiation: { mode: era } });
        await fresh.connect(transport);
        return fresh;
    });
    return {
        call: async tool => {
            const result = await authorized(() => client.callTool({ name: tool, arguments: {} }));
            return result.structuredContent ?? result;
        },
        close: async () => {
            await transport.terminateSession();
            await client.close();
        }
    };
}

const connections = { legacy: await connect('legacy'), auto: await connect('auto') };
say('connected');
for await (const tool of createInterface({ input: process.stdin })) {
    const answers = {};
    for (const [era, { call }] of Object.entries(connections))
        answers[era] = await call(tool).catch(error => ({ error: `${error.name}: ${error.message}` }));
    say(tool, answers);
}
for (const { close } of Object.values(connections)) await close();
