// What both generations of the TypeScript client do with the server. Each step prints one line of JSON.

import { createRequire } from 'node:module';

export const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
export const config = JSON.parse(process.argv[2]);
export const capabilities = { sampling: {}, elicitation: { form: {} }, roots: {} };

export const NOTE = 'note://shared';
export const FANOUT = 5;
const PATIENCE = 60_000;

export const say = (step, found = {}) => process.stdout.write(JSON.stringify({ step, ...found }) + '\n');

// What the server sent on its own account, and the answers to what it asked.
export class Heard {
    logs = [];
    updates = [];
    asked = 0;
    peak = 0;
    #asking = 0;
    #go;
    #allAsked = new Promise(go => (this.#go = go));

    log({ params }) {
        this.logs.push([params.level, params.data]);
    }

    update({ params }) {
        this.updates.push(params.uri);
    }

    // Answer when all questions are here; at the latest after seconds, for then it is the only question.
    async sample({ params }) {
        this.asked += 1;
        this.#asking += 1;
        this.peak = Math.max(this.peak, this.#asking);
        if (this.#asking === FANOUT) this.#go();
        await Promise.race([this.#allAsked, new Promise(go => setTimeout(go, 5000).unref())]);
        this.#asking -= 1;
        const [{ content }] = params.messages;
        const text = (Array.isArray(content) ? content[0] : content).text.replace('question', 'answer');
        return { role: 'assistant', model: 'test', content: { type: 'text', text } };
    }

    async elicit({ params }) {
        const asked = Object.keys(params.requestedSchema.properties).sort().join();
        if (asked !== 'name,seats') throw new Error(`asked for ${asked}`);
        return { action: 'accept', content: { name: 'Ada', seats: 2 } };
    }

    roots() {
        return { roots: [{ uri: 'file:///home/ada' }] };
    }

    async until(condition) {
        const deadline = Date.now() + PATIENCE;
        while (!condition()) {
            if (Date.now() > deadline) throw new Error(`not heard in time: ${condition}`);
            await new Promise(go => setTimeout(go, 5));
        }
    }
}

// `call(params, options)` hides that the two generations put the options in different places.
export async function converse(client, call, heard) {
    const tool = (name, args = {}, options = {}) => call({ name, arguments: args }, options);
    const text = async (...args) => (await tool(...args)).content[0].text;
    await basics(client, tool, text);
    await client.setLoggingLevel('info');
    await tool('chatter');
    await heard.until(() => heard.logs.length >= 2);
    say('logs', { logs: heard.logs.splice(0) });
    say('fanout', { text: await text('fanout', { n: FANOUT }), asked: heard.asked, peak: heard.peak });
    say('elicit', { text: await text('book') });
    await standalone(client, tool, heard);
    say('cut', await told(text, 'walk'));
    say('hung up', await told(text, 'hang_up'));
    await tool('late_error').catch(({ code, message }) => say('late error', { code, message }));
    await cancelled(tool);
    const calls = Array.from({ length: 20 }, (_, i) => text('slow', { seconds: 0.6, text: `call ${i}` }));
    say('parallel', { texts: await Promise.all(calls) });
    await client.ping();
    say('ping', { uris: heard.updates });
}

// The steps that both eras have at the start.
export async function basics(client, tool, text) {
    await lists(client);
    say('echo', { result: await tool('echo', { text: 'höhö \u2028 ✓' }) });
    say('image', { result: await tool('image') });
    say('structured', { result: await tool('weather', { city: 'Bonn' }) });
    say('failed', { result: await tool('fail') });
    say('progress', await told(text, 'ticks', { n: 3 }));
}

async function lists(client) {
    say('tools', { names: (await client.listTools()).tools.map(tool => tool.name).sort() });
    say('resources', { uris: (await client.listResources()).resources.map(found => found.uri) });
    const templates = (await client.listResourceTemplates()).resourceTemplates;
    say('templates', { uris: templates.map(template => template.uriTemplate) });
    say('prompts', { names: (await client.listPrompts()).prompts.map(prompt => prompt.name) });
    say('read', { text: (await client.readResource({ uri: NOTE })).contents[0].text });
    const prompt = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
    say('prompt', { text: prompt.messages[0].content.text });
    const ref = { type: 'ref/prompt', name: 'greet' };
    const found = await client.complete({ ref, argument: { name: 'name', value: 'A' } });
    say('complete', { values: found.completion.values });
}

const ACKNOWLEDGED = ['step 1', 'step 3', 'step 6', 'tick 3', 'after'];

// Call a tool and note the progress it tells; say so where it waits to hear that.
export async function told(text, name, args = {}) {
    const notes = [];
    const replies = [];
    const onprogress = ({ progress, total, message }) => {
        notes.push([progress, total, message]);
        if (ACKNOWLEDGED.includes(message)) replies.push(text('got_it'));
    };
    const result = await text(name, { ...args, acknowledged: true }, { onprogress });
    await Promise.all(replies);
    return { text: result, told: notes };
}

// Hear of a change; then hear of another whose stream is cut just before (over HTTP).
async function standalone(client, tool, heard) {
    await client.subscribeResource({ uri: NOTE });
    await tool('touch');
    await heard.until(() => heard.updates.length >= 1);
    say('updated', { uris: heard.updates });
    await tool('announce', { text: 'cut standalone' });
    await heard.until(() => heard.updates.length >= 2 && heard.logs.length >= 1);
    say('announced', { uris: heard.updates, logs: heard.logs });
    await client.unsubscribeResource({ uri: NOTE });
    await tool('touch');
}

// Start a call that never ends, and cancel it once it runs.
export async function cancelled(tool) {
    const abort = new AbortController();
    const onprogress = () => abort.abort('test');
    await tool('hang', {}, { onprogress, signal: abort.signal }).catch(error => say('cancelled', { outcome: String(error) }));
}
