//! Three Redis servers that are one cluster, each with a third of the slots and without a replica.
//! What one server does is left to `server.rs`.

use super::{Server, wait_until};

const NODES: usize = 3;
const SLOTS: usize = 16_384;
/// Enough for every key of a slot, in a test.
const MANY: &str = "10000";

pub(crate) struct Cluster(Vec<Server>);

impl Cluster {
    /// Starts a cluster and waits until all of its nodes know all slots. It takes the nodes two seconds to believe it.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a cluster with settings of each node, such as `["--cluster-require-full-coverage", "no"]`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let own = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let settings = [&own, settings].concat();
        let nodes: Vec<_> = (0..NODES).map(|_| Server::start_with(&settings)).collect();
        for (place, node) in nodes.iter().enumerate() {
            let slots = (place * SLOTS).div_ceil(NODES)..((place + 1) * SLOTS).div_ceil(NODES);
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            let mut order = vec!["CLUSTER", "ADDSLOTS"];
            order.extend(slots.iter().map(String::as_str));
            node.cli(&order);
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let port = node.port().to_string();
            nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        let cluster = Self(nodes);
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until all nodes say that all is well, as after a restart of one.
    #[track_caller]
    pub(crate) fn wait_until_whole(&self) {
        let whole = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_ok:{SLOTS}"),
            format!("cluster_known_nodes:{NODES}"),
            format!("cluster_size:{NODES}"),
        ];
        wait_until(|| {
            self.0.iter().all(|node| {
                let info = node.cli(&["CLUSTER", "INFO"]);
                whole
                    .iter()
                    .all(|line| info.lines().any(|said| said == line))
            })
        });
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    pub(crate) fn nodes(&self) -> &[Server] {
        &self.0
    }

    pub(crate) fn node(&self, place: usize) -> &Server {
        &self.0[place]
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        self.0[0].query(&["CLUSTER", "KEYSLOT", key]).unwrap()
    }

    /// The place of the node that has a key, by what the nodes say of themselves.
    #[track_caller]
    pub(crate) fn place_of(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let owners = (0..NODES).filter(|place| self.owns(*place, slot));
        let owners: Vec<_> = owners.collect();
        assert_eq!(owners.len(), 1, "nodes that have slot {slot}: {owners:?}");
        owners[0]
    }

    /// The node that has a key.
    #[track_caller]
    pub(crate) fn node_of(&self, key: &str) -> &Server {
        self.node(self.place_of(key))
    }

    fn owns(&self, place: usize, slot: u16) -> bool {
        let nodes = self.0[place].cli(&["CLUSTER", "NODES"]);
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        // After eight fields come slots, `7` or `0-99`; those under way are in brackets.
        own.split(' ').skip(8).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse::<u16>(), last.parse()) {
                (Ok(first), Ok(last)) => (first..=last).contains(&slot),
                _ => false,
            }
        })
    }

    /// Moves the slot of a key, with all keys in it, to another node. Clients are not told, so that the next one to ask
    /// where the key was is answered `MOVED`.
    #[track_caller]
    pub(crate) fn move_key(&self, key: &str, to: usize) {
        self.begin_move(key, to);
        self.end_move(key, to);
    }

    /// Begins to move the slot of a key and moves those keys that there are: the node that had it answers `ASK`.
    #[track_caller]
    pub(crate) fn begin_move(&self, key: &str, to: usize) {
        let (slot, from) = (self.slot(key).to_string(), self.place_of(key));
        let (source, target) = (self.node(from), self.node(to));
        let id = |node: &Server| node.cli(&["CLUSTER", "MYID"]);
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
        let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, MANY]);
        if !keys.is_empty() {
            let port = target.port().to_string();
            let mut order = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
            order.extend(keys.lines());
            source.cli(&order);
        }
    }

    /// Gives the slot of a key to the node that it was moved to, and tells all nodes.
    #[track_caller]
    pub(crate) fn end_move(&self, key: &str, to: usize) {
        let slot = self.slot(key).to_string();
        let id = self.node(to).cli(&["CLUSTER", "MYID"]);
        self.node(to)
            .cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        for node in &self.0 {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }
}
