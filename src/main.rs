mod action;
mod duration;
mod exit;
mod model;
mod payload;
fn main() {}
