// Lists the tools of a server until some are there, calls them, and prints the results, with the TypeScript client 2.x.
// node gateway.mjs URL TOOL,TOOL MODE...

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [url, tools, ...modes] = process.argv.slice(2);
const wanted = tools.split(',');

async function listed(client) {
    for (;;) {
        const names = (await client.listTools()).tools.map(tool => tool.name);
        if (wanted.every(name => names.includes(name))) return names;
        await new Promise(resolve => setTimeout(resolve, 200));
    }
}

for (const mode of modes) {
    const client = new Client({ name: 'ts2', version: '1' }, { versionNegotiation: { mode } });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    const names = await listed(client);
    const texts = {};
    for (const name of wanted) texts[name] = (await client.callTool({ name, arguments: {} })).content[0].text;
    const version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
    process.stdout.write(JSON.stringify({ version, tools: names, texts }) + '\n');
    await client.close();
}
