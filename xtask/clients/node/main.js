// kafkajs against the server under test: `node main.js BOOTSTRAP SERVER [CASE...]`.
// Each case has its own topics and groups; its report goes to standard output as xtask expects it.
'use strict';

const assert = require('node:assert/strict');
const { randomBytes } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs');

const CASE_LIMIT_MS = 60_000;
const PATIENCE_MS = 30_000;

const [bootstrap, , ...only] = process.argv.slice(2);
const kafka = new Kafka({ clientId: 'node', brokers: [bootstrap], logLevel: logLevel.NOTHING });
const suffix = randomBytes(4).toString('hex');
let namesGiven = 0;

const name = (what) => `node-${what}-${suffix}-${namesGiven++}`;

/** Runs `body` with a connected client and disconnects it whatever happens. */
async function using(client, body) {
  await client.connect();
  try {
    return await body(client);
  } finally {
    await client.disconnect();
  }
}

/** Kafka answers a change before every part of it has heard of it: repeats `body` until it passes. */
async function eventually(body) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await body();
    } catch (notYet) {
      if (Date.now() > deadline) throw notYet;
      await sleep(50);
    }
  }
}

async function topicWith(partitions, configEntries = []) {
  const topic = name('topic');
  await using(kafka.admin(), (admin) =>
    admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }], waitForLeaders: true }));
  return topic;
}

const numbered = (prefix, count) =>
  Array.from({ length: count }, (_, n) => ({ key: `key-${n % 31}`, value: `${prefix}${n}` }));

const produce = (topic, messages, settings = {}, more = {}) =>
  using(kafka.producer(settings), (producer) => producer.send({ topic, messages, ...more }));

/** Starts a member of a group that notes every message; `stop()` makes it leave. */
async function member(topic, groupId, seen) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, sessionTimeout: 10_000, maxWaitTimeInMs: 300 });
  const shares = [];
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => shares.push(payload.memberAssignment[topic] ?? []));
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message, partition }) => {
      seen.push({ ...message, partition });
    },
  });
  return { consumer, share: () => shares.at(-1) ?? [], stop: () => consumer.disconnect() };
}

async function read(topic, count) {
  const seen = [];
  const reader = await member(topic, name('reader'), seen);
  try {
    await eventually(() => assert.ok(seen.length >= count, `${seen.length} of ${count} read`));
  } finally {
    await reader.stop();
  }
  assert.equal(seen.length, count);
  return seen;
}

const text = (buffer) => (buffer === null ? null : buffer.toString());

const cases = {
  async 'produce-consume'() {
    const topic = await topicWith(3);
    for (const acks of [-1, 1, 0]) await produce(topic, numbered(`acks${acks}-`, 100), {}, { acks });
    const seen = await read(topic, 300);
    assert.equal(new Set(seen.map((message) => text(message.value))).size, 300);
  },

  async gzip() {
    const topic = await topicWith(1);
    await produce(topic, numbered('packed-', 500), {}, { compression: CompressionTypes.GZIP });
    const seen = await read(topic, 500);
    assert.deepEqual(seen.map((message) => text(message.value)), numbered('packed-', 500).map((one) => one.value));
  },

  async idempotence() {
    const topic = await topicWith(1);
    await using(kafka.producer({ idempotent: true, maxInFlightRequests: 1 }), async (producer) => {
      for (let n = 0; n < 20; n += 1) await producer.send({ topic, messages: [{ value: `${n}` }] });
    });
    const seen = await read(topic, 20);
    assert.deepEqual(seen.map((message) => text(message.value)), Array.from({ length: 20 }, (_, n) => `${n}`));
  },

  async 'headers-and-nulls'() {
    const topic = await topicWith(1);
    const timestamp = `${Date.now() - 5000}`;
    await produce(topic, [
      { key: 'k', value: 'v', headers: { origin: 'node' }, timestamp },
      { key: 'k', value: null },
      { key: null, value: 'v' },
    ]);
    const seen = await read(topic, 3);
    assert.equal(text(seen[0].headers.origin), 'node');
    assert.equal(seen[0].timestamp, timestamp);
    assert.deepEqual(seen.map(({ key, value }) => [text(key), text(value)]), [['k', 'v'], ['k', null], [null, 'v']]);
  },

  async group() {
    const topic = await topicWith(4);
    const groupId = name('group');
    const seen = [];
    const first = await member(topic, groupId, seen);
    await produce(topic, numbered('a', 200));
    await eventually(() => assert.equal(seen.length, 200));
    const second = await member(topic, groupId, seen);
    await eventually(() => assert.deepEqual([first.share().length, second.share().length], [2, 2]));
    await produce(topic, numbered('b', 200));
    await eventually(() => assert.equal(seen.length, 400));
    await first.stop();
    await eventually(() => assert.equal(second.share().length, 4));
    await second.stop();
    assert.equal(new Set(seen.map((message) => text(message.value))).size, 400);
    await produce(topic, numbered('late', 5));
    const resumed = [];
    const third = await member(topic, groupId, resumed);
    await eventually(() => assert.equal(resumed.length, 5));
    await third.stop();
    assert.ok(resumed.every((message) => text(message.value).startsWith('late')));
  },

  async 'seek-and-pause'() {
    const topic = await topicWith(1);
    await produce(topic, numbered('v', 20));
    const seen = [];
    const reader = await member(topic, name('seeker'), seen);
    await eventually(() => assert.equal(seen.length, 20));
    reader.consumer.pause([{ topic }]);
    await produce(topic, numbered('paused', 1));
    await sleep(500);
    assert.equal(seen.length, 20, 'a paused consumer reads nothing');
    reader.consumer.seek({ topic, partition: 0, offset: '18' });
    reader.consumer.resume([{ topic }]);
    await eventually(() => assert.equal(seen.length, 23));
    await reader.stop();
    assert.deepEqual(seen.slice(20).map((message) => message.offset), ['18', '19', '20']);
  },

  async 'admin-topics'() {
    const topic = await topicWith(2, [{ name: 'retention.ms', value: '3600000' }]);
    await produce(topic, Array.from({ length: 10 }, (_, n) => ({ value: `${n}`, partition: 0 })));
    await using(kafka.admin(), async (admin) => {
      assert.ok((await admin.listTopics()).includes(topic));
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
      await eventually(async () => {
        const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
        assert.equal(topics[0].partitions.length, 3);
      });
      const offsets = await admin.fetchTopicOffsets(topic);
      assert.deepEqual(offsets.map(({ partition, offset }) => [partition, offset]).sort(), [[0, '10'], [1, '0'], [2, '0']]);
      const timed = await admin.fetchTopicOffsetsByTimestamp(topic, 1);
      assert.equal(timed.find(({ partition }) => partition === 0).offset, '0');
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] });
      const low = (listed) => listed.find(({ partition }) => partition === 0).low;
      await eventually(async () => assert.equal(low(await admin.fetchTopicOffsets(topic)), '4'));
      await admin.deleteTopics({ topics: [topic] });
      await eventually(async () => assert.ok(!(await admin.listTopics()).includes(topic)));
      await assert.rejects(
        admin.createTopics({ topics: [{ topic: name('odd'), configEntries: [{ name: 'no.such', value: '1' }] }] }),
        /Configuration is invalid|INVALID_CONFIG|Topic creation errors/);
    });
  },

  // kafkajs alters configs with the older request, which replaces all of a topic's configs at once.
  async 'admin-configs'() {
    const topic = await topicWith(1, [{ name: 'retention.ms', value: '3600000' }]);
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    await using(kafka.admin(), async (admin) => {
      await admin.alterConfigs({
        validateOnly: false,
        resources: [{ ...resource, configEntries: [{ name: 'cleanup.policy', value: 'compact' }] }],
      });
      await eventually(async () => {
        const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
        const value = (wanted) => resources[0].configEntries.find((entry) => entry.configName === wanted).configValue;
        assert.equal(value('cleanup.policy'), 'compact');
        assert.equal(value('retention.ms'), '604800000', 'what was not named is back at its default');
      });
      await assert.rejects(admin.alterConfigs({
        validateOnly: false,
        resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: 'soon' }] }],
      }), /Configuration is invalid/);
    });
  },

  async 'admin-cluster'() {
    await using(kafka.admin(), async (admin) => {
      const cluster = await admin.describeCluster();
      assert.equal(cluster.brokers.length, 1);
      assert.equal(`${cluster.brokers[0].host}:${cluster.brokers[0].port}`, bootstrap);
      assert.equal(cluster.controller, cluster.brokers[0].nodeId);
    });
  },

  async 'admin-groups'() {
    const topic = await topicWith(1);
    const groupId = name('watched');
    await produce(topic, numbered('v', 10));
    const seen = [];
    const watched = await member(topic, groupId, seen);
    await eventually(() => assert.equal(seen.length, 10));
    await using(kafka.admin(), async (admin) => {
      assert.ok((await admin.listGroups()).groups.some((group) => group.groupId === groupId));
      const described = (await admin.describeGroups([groupId])).groups[0];
      assert.deepEqual([described.state, described.protocol, described.members.length], ['Stable', 'RoundRobinAssigner', 1]);
      await watched.stop();
      const offset = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset;
      assert.equal(await offset(), '10');
      await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '7' }] });
      assert.equal(await offset(), '7');
      await admin.resetOffsets({ groupId, topic, earliest: true });
      assert.equal(await offset(), '-2', 'kafkajs commits its own mark for the earliest offset');
      await admin.deleteGroups([groupId]);
      assert.ok(!(await admin.listGroups()).groups.some((group) => group.groupId === groupId));
    });
  },
};

async function passes(body) {
  if (!body) {
    console.log('there is no such case');
    return false;
  }
  try {
    const limit = sleep(CASE_LIMIT_MS, null, { ref: false }).then(() => {
      throw new Error(`no end within ${CASE_LIMIT_MS} ms`);
    });
    await Promise.race([body(), limit]);
    return true;
  } catch (failure) {
    console.log(failure.stack ?? failure);
    return false;
  }
}

async function main() {
  const wanted = only.length > 0 ? only : Object.keys(cases);
  wanted.forEach((each) => console.log(`@plan ${each}`));
  for (const each of wanted) {
    console.log(`@begin ${each}`);
    console.log(`${(await passes(cases[each])) ? '@pass' : '@fail'} ${each}`);
  }
  // A case that hung has connections left that would keep the process alive.
  process.exit(0);
}

main();
