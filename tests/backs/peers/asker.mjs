// An ordinary server of @modelcontextprotocol/sdk 1.x on stdio.

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { z } = require('zod');

const server = new McpServer({ name: 'asker', version: '1' });
const text = said => ({ content: [{ type: 'text', text: said }] });

server.registerTool('echo', { inputSchema: { text: z.string() } }, async args => text(args.text));
server.registerTool('two', {}, async () => {
    const said = [];
    for (const message of ['first?', 'second?']) {
        const requestedSchema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
        const answer = await server.server.elicitInput({ message, requestedSchema });
        said.push(answer.content.text);
    }
    return text(said.join(' '));
});
server.registerTool('five', {}, async () => {
    const ask = async number => {
        const messages = [{ role: 'user', content: { type: 'text', text: String(number) } }];
        return (await server.server.createMessage({ messages, maxTokens: 10 })).content.text;
    };
    return text((await Promise.all([0, 1, 2, 3, 4].map(ask))).join(','));
});
await server.connect(new StdioServerTransport());
