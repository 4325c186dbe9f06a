// Calls `interview` of the everything server with the TypeScript client 2.x, and prints what came of it.
// node interview.mjs URL MODE...

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [url, ...modes] = process.argv.slice(2);
const answers = { name: 'Ada', color: 'green' };

async function interview(mode) {
    const asked = [];
    const options = { capabilities: { sampling: {}, elicitation: { form: {} } }, versionNegotiation: { mode } };
    const client = new Client({ name: 'ts2', version: '1' }, options);
    client.setRequestHandler('sampling/createMessage', () => {
        asked.push('sampling');
        return { role: 'assistant', content: { type: 'text', text: 'a line' }, model: 'm' };
    });
    client.setRequestHandler('elicitation/create', ({ params }) => {
        asked.push('elicitation');
        const [field] = Object.keys(params.requestedSchema.properties);
        return { action: 'accept', content: { [field]: answers[field] } };
    });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    const result = await client.callTool({ name: 'interview', arguments: {} });
    const version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
    process.stdout.write(JSON.stringify({ version, result: result.structuredContent, asked }) + '\n');
    await client.close();
}

for (const mode of modes) await interview(mode);
