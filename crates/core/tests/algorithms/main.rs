//! The algorithms beside references, searches, recorded traces and the tables of the guide.

mod any_state;
mod cases;
mod exact;
mod give_back;
mod least_served;
mod lower_numbers;
mod quota_text;
mod reference;
mod reference_cores;
mod seed_traps;
mod seeds;
mod stored_form;
mod table;
mod traces;
mod worst_case;
mod worst_life;
