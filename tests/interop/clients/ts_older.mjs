// Clients of @modelcontextprotocol/sdk that speak 2025-06-18, as Gemini CLI does: one silent call, and one with progress.

import { createRequire } from 'node:module';

const config = JSON.parse(process.argv[2]);
const require = createRequire(new URL('../../../.node/older/package.json', import.meta.url));
const load = path => import(require.resolve(`${config.sdk}/${path}`));
const { Client } = await load('client/index.js');
const { StreamableHTTPClientTransport } = await load('client/streamableHttp.js');
const say = (step, found = {}) => process.stdout.write(JSON.stringify({ step, ...found }) + '\n');

const client = new Client({ name: config.sdk, version: '1' }, { capabilities: {} });
const transport = new StreamableHTTPClientTransport(new URL(config.url));
await client.connect(transport);
say('connected', { version: transport.protocolVersion });
const silent = await client.callTool({ name: 'slow', arguments: { seconds: 1, text: 'silent' } });
say('silent', { text: silent.content[0].text });
const notes = [];
let acknowledged;
const onprogress = ({ progress }) => {
    notes.push(progress);
    if (progress === 3) acknowledged = client.callTool({ name: 'got_it', arguments: {} });
};
const ticks = { name: 'ticks', arguments: { n: 3, acknowledged: true } };
const ticked = await client.callTool(ticks, undefined, { onprogress });
await acknowledged;
say('ticks', { text: ticked.content[0].text, notes });
await client.close();
