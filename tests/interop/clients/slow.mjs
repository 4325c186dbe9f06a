// Calls slow tools with a TypeScript client, and collects their results, as a model does. Prints one line of JSON for each mode.
// node slow.mjs ts1|ts2 COMMAND...

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const [kind, command, ...args] = process.argv.slice(2);
const old = kind === 'ts1';
const { Client } = require(old ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = require(
    old ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio'
);

for (const mode of old ? ['legacy'] : ['legacy', 'auto']) {
    const client = new Client({ name: kind, version: '1' }, old ? {} : { versionNegotiation: { mode } });
    await client.connect(new StdioClientTransport({ command, args }));
    await client.listTools();
    const found = {};
    for (const tool of ['tree', 'word']) {
        let result = await client.callTool({ name: tool, arguments: {} });
        found[`${tool} first`] = Object.keys(result.structuredContent).sort();
        while (result.structuredContent.ticket) {
            const ticket = result.structuredContent.ticket;
            result = await client.callTool({ name: 'collect', arguments: { ticket } });
        }
        found[tool] = result.structuredContent;
    }
    console.log(JSON.stringify({ [mode]: found }));
    await client.close();
}
