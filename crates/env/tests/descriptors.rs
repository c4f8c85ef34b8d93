//! The limit of open descriptors. It needs a process of its own, because the limit is the whole process's.

use riverrun_env::raise_descriptor_limit;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn the_limit_of_descriptors_is_raised_as_far_as_it_may_go() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum }).unwrap();
    assert_eq!(raise_descriptor_limit().unwrap(), maximum);
    assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: maximum, maximum });
    assert_eq!(raise_descriptor_limit().unwrap(), maximum, "nothing is left to raise");
}
