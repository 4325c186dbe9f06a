// Calls slow tools with a TypeScript client, and collects their results, as a model does. Prints one line of JSON for each target and mode.
// node slow.mjs ts1|ts2 TARGETS, as slow.py

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const [kind, targets] = process.argv.slice(2);
const old = kind === 'ts1';
const { Client } = require(old ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = require(
    old ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio'
);
const { StreamableHTTPClientTransport } = require(
    old ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client'
);

async function conversation(client, label) {
    const found = {};
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    const call = async (name, args, meta) =>
        (await client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) })).structuredContent;
    for (const tool of ['tree', 'word']) {
        let result = await call(tool, {});
        found[`${tool} first`] = Object.keys(result).sort();
        while (result.ticket) result = await call('collect', { ticket: result.ticket });
        found[tool] = result;
    }
    const orders = [];
    for (const [dish, key] of [['soup', 'one'], ['soup', 'one'], ['fish', 'two']]) {
        orders.push((await call('order', { dish }, { 'limpet/idempotency-key': `${label}-${key}` })).result);
    }
    found.orders = orders.map((one) => one.split(' ')[0]);
    found['runs once'] = orders[0] === orders[1] && orders[1] !== orders[2];
    if (names.includes('bump')) {
        found.conversations = [];
        for (const name of ['a', 'a', 'b']) {
            found.conversations.push((await call('bump', {}, { 'test/conversation': `${label}-${name}` })).result);
        }
    }
    return found;
}

for (const [name, target] of Object.entries(JSON.parse(targets))) {
    for (const mode of old ? ['legacy'] : ['legacy', 'auto']) {
        const client = new Client({ name: kind, version: '1' }, old ? {} : { versionNegotiation: { mode } });
        const transport =
            typeof target === 'string'
                ? new StreamableHTTPClientTransport(new URL(target))
                : new StdioClientTransport({ command: target[0], args: target.slice(1) });
        await client.connect(transport);
        console.log(JSON.stringify({ [`${name} ${mode}`]: await conversation(client, `${kind}-${name}-${mode}`) }));
        await client.close();
    }
}
