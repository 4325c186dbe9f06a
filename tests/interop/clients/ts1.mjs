// The client of @modelcontextprotocol/sdk 1.x.

import { capabilities, config, converse, Heard, require, say } from './conversation.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const heard = new Heard();
const client = new Client({ name: 'ts1', version: '1' }, { capabilities });
client.setRequestHandler(types.CreateMessageRequestSchema, request => heard.sample(request));
client.setRequestHandler(types.ElicitRequestSchema, request => heard.elicit(request));
client.setRequestHandler(types.ListRootsRequestSchema, () => heard.roots());
client.setNotificationHandler(types.LoggingMessageNotificationSchema, note => heard.log(note));
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, note => heard.update(note));

const [command, ...args] = config.command ?? [];
const transport = config.url
    ? new StreamableHTTPClientTransport(new URL(config.url))
    : new StdioClientTransport({ command, args, env: config.env });
await client.connect(transport);
say('connected', { version: transport.protocolVersion, server: client.getServerVersion().name });
await converse(client, (params, options) => client.callTool(params, undefined, options), heard);
await transport.terminateSession?.();
await client.close();
say('closed');
